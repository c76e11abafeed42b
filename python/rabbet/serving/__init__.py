"""Models inside of serving systems: rabbet.serving.kserve, rabbet.serving.ray.

Each imports the package that it is for; `import rabbet` imports neither.
"""
