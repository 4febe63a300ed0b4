"""Programs of the configuration: started in their hosts, watched, ended, and their output kept."""
