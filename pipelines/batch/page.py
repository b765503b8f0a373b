def write_pages(directory: object, state: object) -> None:
    pass
