/** A place in the server's one order of messages: `EPOCH-SEQ`. */
export type Id = string

/** A published message. */
export interface Message<T = unknown> {
  topic: string
  id: Id
  /** The content type it was published with. */
  type: string
  /** The event name, if it was published with one. */
  event?: string
  /** What JSON types hold; a string of any other UTF-8; else a `Uint8Array`. */
  data: T
}

/** Messages may have been missed. What follows is `resume`, also where the reason is a new one. */
export interface Gap {
  reason:
    | 'history_trimmed' | 'epoch_changed' | 'cursor_ahead' | 'rolled_back' | 'cursor_invalid'
    | 'too_many_topics' | 'memory_pressure' | (string & {})
  /** The cursor that could not be served. */
  since?: Id
  /**
   * `history`: the messages that are still retained. `values`: the current values, also those that
   * were known. `live`: only what is published from now on.
   */
  resume: 'history' | 'values' | 'live'
}

/** A topic that was deleted, and the place of its deletion in the order. */
export interface Deletion {
  topic: string
  id: Id
  deleted: true
}

export type Transport = 'sse' | 'websocket' | 'poll'

/** Of what is watched, what the token does not cover. */
export interface AccessLimited {
  /** Nothing of these is sent. */
  denied: string[]
  /** Of these patterns not all topics are. */
  partial: string[]
}

/** The server refuses a topic or pattern. */
export interface Refused {
  topic: string
  /** In a sentence. */
  reason: string
  /** The error code, such as `patterns_disabled`, `topic_invalid` or `subscription_limit`. */
  code: string
}

/** How the connection is. */
export interface State {
  /** `waiting`: it failed and will be tried again by itself. */
  state: 'connecting' | 'open' | 'waiting' | 'closed'
  /** The transport in use, or the one that is tried next. */
  transport: Transport
  /** What went wrong, in a sentence. */
  reason?: string
  /** The server's error code, such as `token_expired`; only where the server gave one. */
  code?: string
}

/** A step of the connection's own states, for logs; `onState` has what a page shows. */
export interface Step {
  from: Step.State
  event: 'list' | 'behind' | 'level' | 'heard' | 'failed' | 'due' | 'again' | 'end'
  to: Step.State
  reason?: string
  code?: string
}

export namespace Step {
  type State = 'stopped' | 'connecting' | 'catching up' | 'open' | 'waiting'
}

/** Where each event leads from each state of a connection. */
export const STATES: Record<Step.State, Partial<Record<Step['event'], Step.State>>>

export interface Handlers {
  onGap?: (gap: Gap) => void
  onDelete?: (deletion: Deletion) => void
  /** Called at the start of each connection that does not cover all that is watched. */
  onAccessLimited?: (limited: AccessLimited) => void
  /**
   * Called if the server refuses what is watched here; all other watches go on. The client asks
   * again when other topics are added, and after each failure. Without this handler the reason is
   * reported as an error.
   */
  onRefused?: (refused: Refused) => void
  /** Called with the state as it is, and with every change. */
  onState?: (state: State) => void
}

/** Ends a watch; to call it again does nothing. */
export type Stop = () => void

export interface Options {
  /** Default `auto`: SSE, and long-poll where streams do not come through. */
  transport?: 'auto' | Transport
  /**
   * A cursor: the topics watched at first are continued behind it. `earliest`: they begin with all
   * that history has.
   */
  since?: Id | 'earliest'
  /** `latest` skips values that were overtaken; without it each topic's rule decides. */
  mode?: 'all' | 'latest'
  /**
   * What private topics ask for, or a function that gets it: called first, and whenever the token
   * before has ended or was refused. While the function fails, or takes longer than five seconds,
   * the connection is made without a token; the function is called again every half minute.
   */
  token?: string | (() => string | undefined | Promise<string | undefined>)
  /** Called at each step of the connection's states. */
  onStep?: (step: Step) => void
}

export interface Connection {
  /** As the function `watch`, on this connection. Throws a `TypeError` for a wrong topic. */
  watch<T = unknown>(
    topic: string,
    callback: (value: T, message: Message<T>) => void,
    handlers?: Handlers,
  ): Stop
  /** Ends all its watches and the connection. */
  close(): void
}

/**
 * Watches a topic, or all that match a pattern (`*` is one segment, `**` at the end any rest), of
 * the server that the page came from. All these watches share one connection.
 *
 * The callback gets the current value, if there is one, and then every message. What can be no
 * topic and no pattern is a `TypeError`.
 */
export function watch<T = unknown>(
  topic: string,
  callback: (value: T, message: Message<T>) => void,
  handlers?: Handlers,
): Stop

/** Makes a connection of its own; `server` is a URL, by default that of the page's server. */
export function connect(server?: string, options?: Options): Connection
