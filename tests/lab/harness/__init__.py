"""Real Linux nodes for tests: kernels with systemd and cgroup v2 on bridges of the test's own."""
