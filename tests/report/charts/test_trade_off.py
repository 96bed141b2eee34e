from sanp.report.charts.trade_off import pareto


def test_the_front_holds_the_points_that_no_other_beats() -> None:
    # (5, .9) is beaten by (4, .9); (4, .7) by (3, .8); (1, .5), (3, .8), (4, .9), (9, .95) stay.
    points = [(5.0, 0.9), (1.0, 0.5), (4.0, 0.9), (4.0, 0.7), (9.0, 0.95), (3.0, 0.8)]
    assert pareto(points) == [1, 5, 2, 4]
    assert pareto([(2.0, 0.5), (2.0, 0.5)]) == [0, 1]
