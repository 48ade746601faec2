"""Groups and transactions of real clients against a broker process."""
