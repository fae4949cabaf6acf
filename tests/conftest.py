import pytest
import torch
from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
