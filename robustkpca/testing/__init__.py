"""The contract of a plug-in as checks that anyone can run on their own.

from robustkpca.testing import check_attack
def test_my_attack_keeps_the_contract():
    check_attack("mypackage/my_attack@linf:0.1")
"""

from robustkpca.testing.attacks import check_attack
from robustkpca.testing.corruptions import check_corruption
from robustkpca.testing.models import check_model
from robustkpca.testing.recorded import RecordedDraws

__all__ = ["RecordedDraws", "check_attack", "check_corruption", "check_model"]
