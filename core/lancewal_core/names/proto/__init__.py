"""Generated protobuf messages of the stored formats; their ``.proto`` files say how they are made."""
