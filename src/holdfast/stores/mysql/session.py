class SessionStore: pass
