"""Complete models that use releg as a library; releg/README.md explains them."""
