// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @load_c1(%x: memref<?xf32>, %i: index) {
  // expected-error @+1 {{load_c1: value of 'vector<4xi32>' in a buffer of 'f32'}}
  %v = tile.load %x[%i] : memref<?xf32> -> vector<4xi32>
  return
}

// -----

func.func @store_c1(%x: memref<?xf32>, %i: index, %v: i32) {
  // expected-error @+1 {{store_c1: value of 'i32' in a buffer of 'f32'}}
  tile.store %v, %x[%i] : i32, memref<?xf32>
  return
}

// -----

func.func @dot_c1(%acc: vector<8xi32>, %a: vector<8xi16>) {
  // expected-error @+1 {{dot_c1: 'vector<8xi16>' does not fill the lanes of 'vector<8xi32>'}}
  %v = tile.dot %acc, %a, %a : vector<8xi32>, vector<8xi16>
  return
}

// -----

func.func @saturate_c1(%v: vector<8xi32>) {
  // expected-error @+1 {{requires the same shape for all operands and results}}
  %b = tile.saturate %v : vector<8xi32> -> vector<4xi8>
  return
}
