# Siblings named like modules of the recorder.
import clock
import hooks
import record
import session
import sitecustomize
import spans

print([each.MINE for each in (clock, hooks, record, session, spans)], sitecustomize.MINE)
