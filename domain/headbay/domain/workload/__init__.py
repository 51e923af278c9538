"""One workload's life as a pure state machine: events in, instructions out."""
