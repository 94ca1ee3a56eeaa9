"""AutoAttack: a fixed sequence of attacks without a knob that could be turned the wrong way."""

from __future__ import annotations

from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue

VERSIONS = ("standard", "plus", "rand")


def autoattack(*, budget: Budget, version: str = "standard") -> tuple[str, ...]:
    """Return the threats that AutoAttack tries in turn, each on what the ones before left standing.

    Classes are counted by the members: with fewer classes than targets all others are targets.

    Args:
        budget: What may be changed.
        version: ``standard``; ``plus``, with more restarts and the untargeted forms; or ``rand`` for models with random
            output, where each step averages 20 gradients.

    Raises:
        BadValue: If there is no such ``version``.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, section 5; in L1 Croce and Hein 2021, arXiv:2103.01208, section 4; restarts
        and targets as the released code sets them, which gives FAB five restarts in both forms of ``plus``.
    """
    if version not in VERSIONS:
        raise BadValue(f"autoattack: version is {version!r}; expected one of {', '.join(VERSIONS)}")
    square = "square(reach_edges=false)"
    if version == "rand":
        members = ["apgd_ce(eot=20)", "apgd_dlr(eot=20)"]
    elif version == "plus":
        climbs = ["apgd_ce(restarts=5)", "apgd_dlr(restarts=5)"]
        members = [*climbs, "fab(restarts=5)", square, "apgd_t", "fab_t(restarts=5)"]
    elif budget.norm is Norm.L1:
        members = ["apgd_ce(restarts=5)", "apgd_t(targets=5)", "fab_t", square]
    else:
        members = ["apgd_ce", "apgd_t", "fab_t", square]
    return tuple(f"{member}@{budget}" for member in members)
