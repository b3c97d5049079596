"""What a group does with NPU tensors."""
