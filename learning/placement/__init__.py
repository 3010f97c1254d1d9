"""Choose the partition of every endpoint from subscriptions, so that clients need few servers and loads are even.

Pure computation over numpy arrays. Reading order: an ``instance`` holds endpoints and subscription sets, in ``blocks``;
``fanout`` computes over one block, and a ``backend`` over all. ``objective`` defines load, fan-out and cost,
``baselines`` other placements, ``options`` the goals and limits. ``planner`` computes a plan in steps, each a
module: ``hot`` chooses the hot set, ``multilevel`` searches (clusters, bisection, then ``refine`` on every level; few
endpoints: ``exact``), ``relabel`` keeps leaf numbers, ``capacity`` keeps servers within their limits, ``publish``
decides whether to adopt the plan. ``report`` describes it, and ``worth`` compares it with mode x.
"""
