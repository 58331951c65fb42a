// A service as drainer's handler: it puts documents into an index, one per call or many.
//
//     node service.ts        (from Node 22.18 on; before that, npx tsx service.ts)
//     drainer run --topic orders --group indexer -b broker:9092 --split documents --key payload.id \
//         --handler http --set url=http://localhost:8080/drain --set batch=100
//
// PORT is the port, and INDEX the file that stands for the index.
import { appendFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";

type Document = { title?: string; locked?: boolean };

/** A sub-message; a single call is one of them. Its id is the same in each attempt. */
type Item = { id: string; key: string; attempt: number; payload: Document };

type Call = Item | { batch: Item[] };

type Result = {
  id: string;
  result: "done" | "retry" | "skip" | "give-up" | "fail";
  after?: number; // seconds
  text?: string;
};

const index = process.env.INDEX ?? "index.txt";

/** Handles one document. It may come again, so put it under its id rather than add it. */
async function put({ id, key, attempt, payload }: Item): Promise<Result> {
  if (!payload?.title) {
    return { id, result: "give-up", text: "the document has no title" };
  }
  if (payload.locked && attempt < 3) {
    return { id, result: "retry", after: 0.05, text: "the document is locked" };
  }
  try {
    await appendFile(index, `${id} ${key}\n`);
  } catch (error) {
    return { id, result: "fail", text: String(error) };
  }
  return { id, result: "done" }; // must be true: answer after the write
}

/** The status and the body of an answer. */
async function answer(call: Call): Promise<[number, object?]> {
  if ("batch" in call) {
    // One result for each item: an item that is not done holds up only its own lane.
    return [200, { results: await Promise.all(call.batch.map(put)) }];
  }
  const result = await put(call);
  return result.result === "done" ? [204] : [200, result];
}

async function read(request: IncomingMessage): Promise<Call> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString());
}

const server = createServer(async (request, response) => {
  if (request.method !== "POST" || request.url !== "/drain") {
    response.writeHead(404).end();
    return;
  }
  try {
    const [status, body] = await answer(await read(request));
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(body && JSON.stringify(body));
  } catch (error) {
    response.writeHead(error instanceof SyntaxError ? 400 : 500).end();
  }
});
server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1");
