/** The public names of the SDK. */

export { CLOSE_CODES, ERROR_CODES, reconnects } from "./codes.ts";
export type { ErrorCode } from "./codes.ts";
export type { ConnectionState, ConnectionStatus } from "./connection.ts";
export { DataService } from "./data.ts";
export type { DataOptions, Health } from "./data.ts";
export { DataCache } from "./cache.ts";
export type { CollectionChange, CollectionOptions, OnCollectionProblem } from "./collections.ts";
export { createDiem } from "./diem.ts";
export type { Diem, DiemOptions, OnProblem, Stats } from "./diem.ts";
export { browserEnvironment } from "./environment.ts";
export type { Environment } from "./environment.ts";
export type { Bounds, Store, Stored } from "./store.ts";
export { DataError } from "./http.ts";
export type { LiveStatus } from "./liveness.ts";
export type { Rejection } from "./messages.ts";
export { isEndpoint } from "./messages.ts";
export type { Observable } from "./observable.ts";
export type { CatalogueEntry, Dataset, LoadFunction, Point, Series, Snapshot } from "./snapshot.ts";
export { UpdatesService } from "./updates.ts";
export type { Subscription, UpdatesOptions } from "./updates.ts";
export type { Callback, Change } from "./subscribers.ts";
