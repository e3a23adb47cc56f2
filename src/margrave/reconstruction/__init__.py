"""From noisy residuals to marginals: pure post-processing, which knows neither data nor noise sources."""
