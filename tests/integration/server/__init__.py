"""Other people's clients against a broker process."""
