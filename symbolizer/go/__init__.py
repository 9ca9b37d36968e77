"""A Go program's own tables: build information, pclntab, moduledata, inline trees."""
