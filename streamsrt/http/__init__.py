"""An instance over HTTP: queries that are routed to the instance that has the answer, health, metrics, tasks, topology.

- ``answers``         the response of each path, as values
- ``forwarding``      forwards requests to the other instances
- ``instance``        what HTTP needs of a running application
- ``key_path``        paths that end in a key
- ``missing_module``  why HTTP can't start if a module is not found
- ``names``           the names under which a server is reached, and those that one on loopback accepts
- ``pages``           responses with many rows, sent in pieces: nobody holds all of them at once
- ``questions``       the parameters of each path, and what they mean
- ``server``          paths, status codes, the socket and its thread
- ``starting``        starts HTTP beside an instance
- ``text``            keys from URLs, rows as JSON
- ``upgrade``         the progress of an upgrade, from the group and from this instance

It needs ``pip install 'streamsrt[http]'``; ``http.listen`` enables it and sets its address. There is no encryption and
no authentication: it is for the network of the application, or for a proxy in front of it.
"""
