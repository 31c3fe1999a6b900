-- wrk: requests for files drawn at random, each as likely as any other. The requests are written
-- out beforehand, so that a draw is all that they cost the load generator while it measures.
-- Arguments: PATH_FORMAT FILES

local prepared = {}

function init(args)
   for i = 1, tonumber(args[2]) do
      prepared[i] = wrk.format(nil, string.format(args[1], i - 1))
   end
   math.randomseed(20240602)
end

function request()
   return prepared[math.random(#prepared)]
end
