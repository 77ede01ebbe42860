# Checks: CRLF line ends, form feed, no newline at the end, tabs; triple-quoted text has LF only.
x = '''a
b'''

if x:
	print(repr(x))
print(__file__.endswith('.py'), open(__file__, newline='').read().count('\r\n'))
assert x == 'a\r\nb', 'only LF'