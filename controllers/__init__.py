"""OpenFlow controllers and the routes that they install."""
