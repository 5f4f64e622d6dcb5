"""Members of the classic protocol in a streams group, and groups that change between the two protocols."""
