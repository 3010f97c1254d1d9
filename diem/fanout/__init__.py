"""Who is subscribed to what, what is retained, and which frame goes to whom. Pure: no I/O, no clocks.

Reading order: ``session`` (one client, and conflation while it is blocked), ``fanout`` (registry and delivery),
``feed_state`` (retained updates and positions of a feed), ``feed_hub`` (the two joined: a server), ``ownership`` (which
endpoints a server of a group serves, and ``moved``), ``change_map`` (what a feed is served from).
"""
