"""Shows how the watermark follows the work, and what that costs, against the longest lane first."""
