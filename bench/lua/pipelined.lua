-- wrk: DEPTH copies of the request in one write (wrk counts them and waits for as many answers).
-- Arguments: DEPTH

local batch

function init(args)
   batch = string.rep(wrk.format(), tonumber(args[1]))
end

function request()
   return batch
end
