"""From noisy residuals to marginals: pure post-processing, which sees neither the data nor the noise."""
