import numpy as np

from sanp.report.charts.channels import agreement, channel_order


def test_agreement_is_the_chance_that_two_images_decide_alike() -> None:
    # Channels 0 and 3 are the same for all and do not count.
    shares = np.array([[1.0, 0.5, 1.0, 0.0], [1.0, 0.25, 0.0, 0.0]])
    # 0 and 0: (.5 .5 + .5 .5 + 1) / 2; 0 and 1: (.5 .25 + .5 .75 + 0) / 2; 1 and 1: (.0625 + .5625 + 1) / 2.
    assert agreement(shares).tolist() == [[0.75, 0.25], [0.25, 0.8125]]
    assert agreement(np.ones((2, 3))).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_channels_are_ordered_by_the_class_that_uses_them_most() -> None:
    shares = np.array([[0.0, 0.2, 1.0, 0.9, 0.5], [0.0, 0.8, 1.0, 0.3, 0.1]])
    # 2 is always open; class 0 uses 3 (mean .6) and 4 (mean .3) most, class 1 uses 1; 0 is never open.
    assert channel_order(shares).tolist() == [2, 3, 4, 1, 0]
