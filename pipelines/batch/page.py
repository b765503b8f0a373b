def write_pages(directory, state):
    pass
