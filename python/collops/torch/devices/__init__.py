"""What a group does with tensors on devices that have streams: NPUs and GPUs."""
