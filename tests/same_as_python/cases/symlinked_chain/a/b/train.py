# A chain of links, one of them in a folder that is a link itself.
import sibling

print(sibling.NAME)
