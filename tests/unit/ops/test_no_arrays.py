"""What stands for numbers and has none, given to an operator, is told."""

import numpy as np
import pytest

from tensorlang.errors import OperatorError
from tensorlang.ir import placeholder
from tensorlang.ops import nn


@pytest.mark.parametrize("op", [nn.relu, nn.softmax])
def test_a_placeholder_is_no_array(op):
    with pytest.raises(OperatorError, match="takes arrays, and a definition has"):
        op(placeholder((4, 4), "f32", "x"))
    with pytest.raises(OperatorError, match="takes arrays, and a definition has"):
        nn.relu(np.ones(4, np.float32), out=placeholder((4,), "f32", "x"))
