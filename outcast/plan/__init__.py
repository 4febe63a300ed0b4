"""What will be built and sent: nodes, links, paths, flows, the bottleneck; all of it pure."""
