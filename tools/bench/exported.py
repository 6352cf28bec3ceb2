"""Files of one model by several exporters: DIR/NAME/VARIANT.onnx, and what ref.json beside them says."""


def variant_flags(ref, variant):
    """The options of zcc that a file needs: the loss of logits.*, whose graph has none, and the batch of dynbatch.*."""
    return ([f"--loss={ref['loss']}"] if variant.startswith("logits") else []) + ([f"--dim=batch={ref['batch']}"] if variant.startswith("dynbatch") else [])
