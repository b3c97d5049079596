"""``collops bench torch``: calls of torch.distributed on collops beside gloo, in one run."""
