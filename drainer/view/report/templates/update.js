// Replaces the shown page by a new one every two seconds. If there is no answer, it says since when.
const every = 2000, silent = document.getElementById("silent");
let heard = new Date();
setInterval(async () => {
  try {
    const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const open = [...document.querySelectorAll("details")].map((each) => each.open);
    document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
    document.querySelectorAll("details").forEach((each, at) => (each.open = open[at] ?? false));
    document.title = page.title;
    heard = new Date();
    silent.hidden = true;
  } catch {
    silent.hidden = false;
    silent.textContent = `No answer since ${heard.toLocaleTimeString()}: the drain has ended, or is away`;
  }
}, every);
