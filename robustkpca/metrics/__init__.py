"""Numbers of a whole set of samples: corruption error, calibration, detection."""
