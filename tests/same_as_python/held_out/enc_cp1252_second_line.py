#!/usr/bin/env python
# vim: set fileencoding=cp1252 : Checks: coding cookie in the second line (vim style), euro sign.
print('€', ascii('€'))
raise ValueError('€')
