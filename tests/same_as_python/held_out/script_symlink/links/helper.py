V = 'next to the link'
