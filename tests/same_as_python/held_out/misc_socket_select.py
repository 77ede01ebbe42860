# Checks: socketpair, select, selectors, http server in a thread with a client, EINTR-free; default socket timeout None; port is closed at the end.
import socket, select, threading, http.server, urllib.request
print(socket.getdefaulttimeout()); a, b = socket.socketpair(); a.send(b"x"); print(select.select([b], [], [], 1)[0] == [b], b.recv(5), select.select([b], [], [], 0.01))
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"hello " + self.path.encode())
    def log_message(self, *a): pass
s = http.server.HTTPServer(("127.0.0.1", 0), H); t = threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.01}); t.start()
op = urllib.request.build_opener(urllib.request.ProxyHandler({})); print(op.open(f"http://127.0.0.1:{s.server_port}/x", timeout=5).read()); s.shutdown(); t.join(); s.server_close()
