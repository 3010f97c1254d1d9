import { expect, test } from "vitest";
import { Frames } from "../../src/page/frames.ts";
import { Watching } from "../../src/page/watching.ts";
import type { Dataset, Diem } from "../../src/sdk/index.ts";

/** A Diem that knows what is watched. */
class Watched {
  readonly now: string[] = [];
  readonly diem = {
    watch: (endpoint: string) => {
      this.now.push(endpoint);
      return () => void this.now.splice(this.now.indexOf(endpoint), 1);
    },
  } as unknown as Diem;
}

const settled = (): Promise<void> => Promise.resolve();
const take = (): void => undefined;

test("only what views in sight want is watched", async () => {
  const watched = new Watched();
  const watching = new Watching(watched.diem);
  const [one, two] = [watching.group(), watching.group()];
  one.want("/a", take);
  two.want("/b", take);
  await settled();
  expect(watched.now).toEqual([]);
  one.show(true);
  await settled();
  expect(watched.now).toEqual(["/a"]);
  one.want("/c", take);
  two.show(true);
  one.show(false);
  await settled();
  expect(watched.now).toEqual(["/b"]);
  two.drop("/b");
  await settled();
  expect(watched.now).toEqual([]);
});

test("a view of series is not given data of another kind", async () => {
  let send!: (snapshot: Partial<Dataset>) => void;
  const watching = new Watching({ watch: (_: string, take: typeof send) => ((send = take), () => undefined) } as unknown as Diem);
  const [series, any] = [watching.group(), watching.group()];
  const taken: unknown[] = [];
  series.want("/a", (dataset) => taken.push(dataset.points), (problem) => taken.push(problem));
  series.show(true);
  await settled();
  send({ mediaType: "application/json", value: {} as Dataset["value"] });
  send({ points: [] });
  any.wantAny("/a", ({ value }) => taken.push(value));
  any.show(true);
  await settled();
  send({ mediaType: "application/json", value: 7 as unknown as Dataset["value"] });
  expect(taken).toEqual(["Not a series", [], 7]);
});

test("at the limit the views further down wait, and get their turn", async () => {
  const watched = new Watched();
  const watching = new Watching(watched.diem, 2);
  const [one, two] = [watching.group(), watching.group()];
  for (const endpoint of ["/a", "/b"]) one.want(endpoint, take);
  for (const endpoint of ["/b", "/c"]) two.want(endpoint, take);
  one.show(true);
  two.show(true);
  await settled();
  expect(watched.now).toEqual(["/a", "/b", "/b"]); // two views of one endpoint are one subscription
  expect([one.curbed, two.curbed]).toEqual([false, true]);
  one.drop("/a");
  await settled();
  expect(watched.now).toEqual(["/b", "/b", "/c"]);
  expect(two.curbed).toBe(false);
});

test("an endpoint that is wanted again is watched again, with its new listener", async () => {
  const watched = new Watched();
  const group = new Watching(watched.diem).group();
  group.show(true);
  group.want("/a", take);
  await settled();
  group.clear();
  group.want("/a", take);
  await settled();
  expect(watched.now).toEqual(["/a"]);
});

test("a part of the page is drawn once a frame, however often it changes", () => {
  const frames: (() => void)[] = [];
  const drawing = new Frames((run) => void frames.push(run));
  const drawn: string[] = [];
  const part = (): void => void drawn.push("part");
  for (let change = 0; change < 50; change += 1) drawing.draw(part);
  drawing.draw(() => {
    drawn.push("other");
    drawing.draw(part); // asked for while drawing: the next frame
  });
  expect([frames.length, drawn]).toEqual([1, []]);
  frames[0]?.();
  expect([frames.length, drawn]).toEqual([2, ["part", "other"]]);
  frames[1]?.();
  expect(drawn).toEqual(["part", "other", "part"]);
});

test("a view is put back from a version that is lost until there is a newer one", async () => {
  const views: Parameters<Diem["watch"]>[] = [];
  const diem = { watch: (...view: Parameters<Diem["watch"]>) => (views.push(view), () => undefined) } as unknown as Diem;
  const group = new Watching(diem).group();
  group.want("/a", take);
  group.show(true);
  await settled();
  const [[, onData, onProblem] = []] = views;
  const found: boolean[] = [];
  const look = (): void => void found.push(group.isPutBack);
  onData?.({ version: 7 } as Dataset);
  look();
  onProblem?.({ code: "lost", message: "version 9 is lost" });
  look();
  onData?.({ version: 10 } as Dataset);
  look();
  expect(found).toEqual([false, true, false]);
});
