"""Is what lies on the disk what was put: manifests, scrubbing, verification, repair."""
