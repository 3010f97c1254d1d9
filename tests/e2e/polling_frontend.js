// The front-end that DIEM replaced (thesis 6.1), as a test double: one service that is sent every update and keeps only
// the latest, clearing it after a while; views that poll it at an interval and hope to see theirs.
(url, endpoints, pollEvery) => {
  const seen = {};
  let latest = null;
  const socket = new WebSocket(url, "diem.v1.json");
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "update") latest = message;
  };
  for (const endpoint of endpoints) {
    setInterval(() => {
      if (latest?.endpoint === endpoint) seen[endpoint] = latest.version;
    }, pollEvery);
  }
  window.polling = { seen };
  return new Promise((resolve, reject) => {
    socket.onopen = () => resolve(true);
    socket.onerror = reject;
  });
};
