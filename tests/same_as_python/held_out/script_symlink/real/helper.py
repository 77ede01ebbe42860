V = 'next to the target'
