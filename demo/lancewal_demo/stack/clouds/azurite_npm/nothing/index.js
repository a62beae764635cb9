// Stands for packages that the blob service alone never calls.
