def finish(session, exitstatus): pass
